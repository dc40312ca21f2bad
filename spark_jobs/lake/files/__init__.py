"""How rows get in and out: data files, write-audit-publish, lookups, maintenance."""
