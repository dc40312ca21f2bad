"""What was computed: step keys, data versions, the ledger's rows, and the leases between writers."""
