"""The run that compiles the kernels."""

from spark_jobs.dedup.rehearsal import rehearse


def test_a_rehearsal_goes_through_all_kernels_and_finds_the_planted_pair() -> None:
    """Two of its four texts differ in one word; a change of a kernel's interface shows here first."""
    assert rehearse() == 1
