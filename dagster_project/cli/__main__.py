"""`python -m dagster_project.cli`, the same as `headrace`."""

from dagster_project.cli import main
from headrace.interrupts import heed_interrupts

heed_interrupts()
main()
