"""How rows are written to tables and read from them: data files, write-audit-publish, lookups, maintenance."""
