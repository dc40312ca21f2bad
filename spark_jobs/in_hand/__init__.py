"""Functions on data in hand: frames, lists and streams of texts, without a lake, an engine or a server.

Each does what a step does, by the step's own kernels, on the cores of this machine. The front door names them:
`headrace.deduplicate`, `headrace.filter`, `headrace.tokenize`, `headrace.detect_language`.
"""
