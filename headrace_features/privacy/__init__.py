"""Privacy: what a text holds that must not go on, and data that waits until somebody has looked at it.

personal_data/  the scorer: mail addresses, numbers and secrets, by rules with checksums; names by a model
redaction       the steps of a dataset that redacts
scans/          what a quarantined increment holds: malware, secrets, personal data, fixtures; rules of release
released        the step that carries released increments over
quarantine      the assets of a dataset that is not trusted
profanity/      the scorer: words of lists
command         `headrace quarantine`

Quarantined tables are guarded by the core, whether or not this folder is there (`spark_jobs.lake.plan.decisions`).
"""
