"""What opt-outs and sites say while an increment lands: the entry point of `permissions`."""
