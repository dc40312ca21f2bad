"""Privacy: what a text holds that must not go on, and data waiting until somebody has looked at it.

personal_data/  the scorer: mail addresses, numbers and secrets, by rules with checksums; names by a model
redaction       the steps of a redacting dataset
scans/          what a quarantined increment holds: malware, secrets, personal data, fixtures; rules of release
released        the step to carry released increments over
quarantine      the assets of an untrusted dataset
profanity/      the scorer: words of lists
command         `headrace quarantine`

Quarantined tables are guarded by the core, whether or not this folder is there (`spark_jobs.lake.plan.decisions`).
"""
