"""Scans of what waits in quarantine: malware, secrets, personal data, licences, and what looks like test data."""
