"""`python -m dagster_project.cli`, the same as `headrace`."""

from dagster_project.command import main

main()
