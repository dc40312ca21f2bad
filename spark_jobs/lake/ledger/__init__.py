"""What was computed: step keys, data versions, the ledger, and the lease of a table's only writer."""
