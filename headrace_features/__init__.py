"""What headrace does beside its main road: a folder for each feature, found by `features.toml`.

A feature imports the core and of other features `models` alone; the core imports none, and goes on where a folder is
not there. `headrace features` lists them.
"""


def require(feature: str, what: str) -> None:
    """Refuse what is made with another feature, where that is not there.

    Raises:
        ConfigError: it is not; the message begins with `what`.
    """
    from spark_jobs.exceptions import ConfigError  # a client of rollouts imports this package, and none of those
    from spark_jobs.features import features

    if not features()[feature].is_there:
        raise ConfigError(f"{what} needs the feature {feature}, which is not installed here; install headrace whole")
