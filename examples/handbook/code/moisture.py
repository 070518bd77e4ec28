"""From the raw counts of a Spade to volumetric water content."""

from dataclasses import dataclass

DRY_COUNTS = 3120
WET_COUNTS = 1340
TEMPERATURE_DRIFT = 1.7  # counts for each degree above 20 °C

LOW_BATTERY_MV = 2750
IN_AIR_COUNTS = 900
SATURATED_PCT = 46.0
"""No soil that we know holds more; a higher value is a puddle or a broken stake."""


@dataclass(frozen=True)
class Raw:
    """What the radio delivers: two electrodes, one thermometer, one battery."""

    counts_upper: int
    counts_lower: int
    temperature_c: float
    battery_mv: int


def water_content_pct(raw: Raw) -> float:
    """Mean of both electrodes, corrected for temperature, between 0 and SATURATED_PCT.

    Raises:
        ValueError: the electrodes differ by more than 900 counts, which means that the stake stands in air.
    """
    if abs(raw.counts_upper - raw.counts_lower) > IN_AIR_COUNTS:
        raise ValueError("electrodes disagree; the stake is not fully in the ground")
    counts = (raw.counts_upper + raw.counts_lower) / 2
    counts -= TEMPERATURE_DRIFT * (raw.temperature_c - 20.0)
    share = (DRY_COUNTS - counts) / (DRY_COUNTS - WET_COUNTS)
    return max(0.0, min(1.0, share)) * SATURATED_PCT


def battery_is_low(raw: Raw) -> bool:
    """Below 2,750 mV the radio begins to lose packets in the cold."""
    return raw.battery_mv < LOW_BATTERY_MV


def needs_water(pct: float, *, wilting_pct: float, field_capacity_pct: float) -> bool:
    """The rule of thumb that Furrow shows while Almanac is still learning a new field.

    Half of the water that plants can use is gone.
    """
    return pct < wilting_pct + 0.5 * (field_capacity_pct - wilting_pct)
