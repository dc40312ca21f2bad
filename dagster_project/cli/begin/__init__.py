"""Commands to begin with: a demo, a project of your own, this machine, and pages to look at a lake."""
