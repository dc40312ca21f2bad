"""The run that compiles the kernels of a fresh installation."""

from spark_jobs.rehearsal import rehearse


def test_a_rehearsal_calls_all_kernels_as_steps_do() -> None:
    """A change of a kernel's interface shows here before it shows in a set-up."""
    rehearse()
