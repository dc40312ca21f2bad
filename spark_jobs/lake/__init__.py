"""The lake below all steps: catalogue, tables declared in code, increments, ledger, write-audit-publish."""
