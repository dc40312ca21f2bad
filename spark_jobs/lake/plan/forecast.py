"""What a run will compute and why, worked out from the ledger before any work starts; no row is read, no Spark needed.

Steps are looked at in the order of the run, and each knows what is forecast of the tables that it reads:

    certain    the place is new, or its step key differs whatever comes out of the steps before it
    possible   its inputs are computed again, so it follows where their rows come out differently (early cut-off)

Rows and seconds are estimates from the ledger: what the place had last time, or for a new one what earlier increments
had per row of the first input.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_jobs.exceptions import SparkJobsError
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.due import Due, ForecastPlace, Upcoming
from spark_jobs.lake.plan.estimates import estimated, listed_bytes, read_bytes
from spark_jobs.lake.plan.foreseen import StepForecast
from spark_jobs.lake.plan.frozen import stays
from spark_jobs.lake.plan.plan import due
from spark_jobs.lake.plan.reasons import other_settings, refused_columns, stays_as


def forecast(ledger: Ledger, bindings: Iterable[Binding]) -> list[StepForecast]:
    """Forecast a run of some steps."""
    upcoming = Upcoming()
    forecasts = []
    for binding in bindings:
        try:
            for table in binding.tables:
                ledger.places(table)
            refused = refused_columns(ledger, binding)
            step_forecast = StepForecast(binding, problem=refused) if refused else _step(ledger, binding, upcoming)
        except SparkJobsError as error:
            step_forecast = StepForecast(binding, problem=str(error))
        forecasts.append(step_forecast)
        for table in binding.tables:
            upcoming.places.setdefault(table, {}).update({place.place: place for place in step_forecast.places})
    return forecasts


def _step(ledger: Ledger, binding: Binding, upcoming: Upcoming) -> StepForecast:
    """The forecast of one step."""
    scope = binding.step.scope
    computed = ledger.places(binding.tables[0])
    if binding.partition is not None:
        row = computed.get(binding.partition.key)
        computed = {} if row is None else {binding.partition.key: row}
    upcoming_here = upcoming.places.setdefault(binding.tables[0], {})
    all_due: list[Due] = []
    for due_part in due(ledger, binding, upcoming):
        upcoming_here[due_part.place.key] = ForecastPlace(
            due_part.place.key, due_part.reason, due_part.certain, due_part.exists
        )
        all_due.append(due_part)
    places = [estimated(ledger, binding, due_part, upcoming) for due_part in all_due]
    byte_count: int | None = 0
    held_bytes = 0
    if binding.step.discover is not None:
        byte_count = listed_bytes(all_due)
        if not all_due and not computed and getattr(binding.config, "is_fetched", False):
            reason = "nothing was fetched yet; the run asks the source first"
            places, byte_count = [ForecastPlace("0", reason, certain=True, exists=False)], None
    elif scope is not Scope.INTAKE:  # of a history the last place joins the most
        read = [
            read_bytes(ledger, binding, due_part) for due_part in (all_due[-1:] if scope is Scope.HISTORY else all_due)
        ]
        byte_count, held_bytes = (
            max((text_bytes.new for text_bytes in read), default=0),
            max((text_bytes.held for text_bytes in read), default=0),
        )
    if binding.step.discover is not None or scope is Scope.INTAKE:
        numbers = sorted({int(place) for place in [*computed, *(forecast_place.place for forecast_place in places)]})
        upcoming.increments.update(dict.fromkeys(binding.tables, numbers))
    again = {forecast_place.place for forecast_place in places}
    frozen = "" if again else other_settings(ledger, binding)
    kept = sum(place not in again for place in computed)
    stay = stays_as(ledger, binding, upcoming.again(computed["0"])) if stays(ledger, binding) and not again else ""
    return StepForecast(binding, tuple(places), kept, frozen, "", byte_count, held_bytes, stay)
