"""What a fleet costs on AWS: requests, write units and bytes of a month, and what they cost at given prices.

    python -m infra.cost
    python -m infra.cost --sims 500 --beat-seconds 10 --price write_units_million=0.7423

Prices are those of AWS's public price pages for us-east-1, in US dollars, on demand, first tier, as known when this was
written; nothing looks them up. Each can be given. Not in the bill: data that leaves AWS, reads of S3, CloudFront.
"""

import argparse
import sys
from dataclasses import dataclass, fields, replace

SECONDS_A_MONTH = 30 * 24 * 3600
MIB, GIB = 1024**2, 1024**3


@dataclass(frozen=True)
class Prices:
    """US dollars for one of each."""

    api_requests_million: float = 3.50
    """REST API of API Gateway, the first 333 million a month."""
    lambda_requests_million: float = 0.20
    lambda_gb_second: float = 0.0000133334
    """On arm64."""
    write_units_million: float = 0.625
    read_units_million: float = 0.125
    table_gib_month: float = 0.25
    backup_gib_month: float = 0.20
    """Point-in-time recovery."""
    s3_puts_thousand: float = 0.005
    s3_gib_month: float = 0.023
    logs_gib: float = 0.50
    metrics_month: float = 0.30
    alarms_month: float = 0.10
    dashboards_month: float = 3.00
    secrets_month: float = 0.40


@dataclass(frozen=True)
class Fleet:
    """What runs, all month."""

    sims: int
    """Running at any time."""
    beat_seconds: float = 5.0
    chunk_seconds: float = 10.0
    """Between two log chunks of a sim."""
    chunk_bytes: int = 1500
    """Of a chunk as stored, compressed."""
    sim_hours: float = 4.0
    """A sim takes that long; as many start as end."""
    kernels_a_sim: int = 200
    kernel_bytes: int = 4500
    file_mib_a_sim: float = 20.0
    kept_months: float = 1.0
    """How long runs are kept before they are deleted."""
    milliseconds: float = 12.0
    """A warm call takes so long; the container is billed to the millisecond."""
    memory_gib: float = 0.5


@dataclass(frozen=True)
class Usage:
    """Of one month."""

    heartbeats: float
    requests: float
    lambda_gb_seconds: float
    write_units: float
    read_units: float
    s3_puts: float
    table_gib: float
    s3_gib: float
    logs_gib: float


def _units(size: float) -> float:
    """Write units of an item of that many bytes."""
    return max(1.0, -(-size // 1024))


def usage(fleet: Fleet) -> Usage:
    """What a fleet uses, from what each call of the API costs; the numbers are those of docs/architecture.md."""
    heartbeats = fleet.sims * SECONDS_A_MONTH / fleet.beat_seconds
    chunks = fleet.sims * SECONDS_A_MONTH / fleet.chunk_seconds
    finished = fleet.sims * SECONDS_A_MONTH / (fleet.sim_hours * 3600)
    sweeps = SECONDS_A_MONTH / 60
    requests = heartbeats + chunks + finished * 6  # claim, final beat, two files, step timing, one look
    # A chunk is one item, and moves the cursor; kernels and cursor move in a transaction, which counts twice.
    chunk_units = chunks * (_units(fleet.chunk_bytes) + 1)
    kernel_units = finished * fleet.kernels_a_sim * 2 * _units(fleet.kernel_bytes)
    # A sim: two items when created, a claim in a transaction, index entries as it starts and ends, two files' ledgers.
    sim_units = finished * 24
    # A chunk looks at the sim and its cursor: one query of up to 4 KB, strongly consistent.
    read_units = chunks * 1.5 + sweeps * (16 + fleet.sims) + finished * 20
    gb_seconds = (requests * fleet.milliseconds / 1000 + sweeps * (0.2 + fleet.sims / 5000)) * fleet.memory_gib
    kept = finished * fleet.kept_months
    chunk_count = fleet.sim_hours * 3600 / fleet.chunk_seconds
    table_bytes = kept * (3000 + chunk_count * (fleet.chunk_bytes + 150) + fleet.kernels_a_sim * fleet.kernel_bytes)
    return Usage(
        heartbeats=heartbeats,
        requests=requests,
        lambda_gb_seconds=gb_seconds,
        write_units=heartbeats + chunk_units + kernel_units + sim_units,
        read_units=read_units,
        s3_puts=finished * 3,
        table_gib=table_bytes / GIB,
        s3_gib=kept * fleet.file_mib_a_sim * MIB / GIB,
        # Three lines of Lambda's own a call.
        logs_gib=requests * 350 / GIB,
    )


def bill(used: Usage, prices: Prices) -> dict[str, float]:
    """Dollars a month by what they are for; `total` last."""
    parts = {
        "API Gateway": used.requests / 1e6 * prices.api_requests_million,
        "Lambda": used.requests / 1e6 * prices.lambda_requests_million
        + used.lambda_gb_seconds * prices.lambda_gb_second,
        "DynamoDB writes": used.write_units / 1e6 * prices.write_units_million,
        "DynamoDB reads": used.read_units / 1e6 * prices.read_units_million,
        "DynamoDB storage and recovery": used.table_gib * (prices.table_gib_month + prices.backup_gib_month),
        "S3": used.s3_puts / 1e3 * prices.s3_puts_thousand + used.s3_gib * prices.s3_gib_month,
        "CloudWatch": used.logs_gib * prices.logs_gib
        + 14 * prices.metrics_month
        + 8 * prices.alarms_month  # six, of which two look at two metrics: billed by the metric
        + prices.dashboards_month,
        "Secrets Manager": prices.secrets_month,
    }
    return {**parts, "total": sum(parts.values())}


def table(fleets: list[Fleet], prices: Prices) -> str:
    """Usage and bill of several fleets side by side, as Markdown."""
    uses = [usage(fleet) for fleet in fleets]
    bills = [bill(used, prices) for used in uses]
    head = "| a month | " + " | ".join(f"{fleet.sims:,} sims" for fleet in fleets) + " |"
    lines = [head, "|---|" + "---:|" * len(fleets)]
    for field in fields(Usage):
        cells = (_short(getattr(used, field.name)) for used in uses)
        lines.append(f"| {field.name.replace('_', ' ')} | " + " | ".join(cells) + " |")
    lines += [f"| {name}, $ | " + " | ".join(f"{one[name]:,.2f}" for one in bills) + " |" for name in bills[0]]
    return "\n".join(lines)


def _short(value: float) -> str:
    for limit, end in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:,.1f} {end}"
    return f"{value:.2f}"


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(description="What a fleet of sims costs on AWS in a month.")
    parser.add_argument("--sims", type=int, action="append", help="running at any time; may be repeated")
    parser.add_argument("--beat-seconds", type=float, default=5.0)
    parser.add_argument("--chunk-seconds", type=float, default=10.0)
    parser.add_argument("--price", action="append", default=[], metavar="NAME=DOLLARS", help="instead of the one known")
    given = parser.parse_args(arguments)
    known = {field.name for field in fields(Prices)}
    prices = Prices()
    for one in given.price:
        name, _, dollars = one.partition("=")
        try:
            prices = replace(prices, **{name: float(dollars)})
        except (TypeError, ValueError):
            parser.error(f"--price {one!r} must be NAME=DOLLARS with NAME one of {', '.join(sorted(known))}")
    fleets = [
        Fleet(sims, beat_seconds=given.beat_seconds, chunk_seconds=given.chunk_seconds)
        for sims in given.sims or (10, 1_000, 100_000)
    ]
    print(table(fleets, prices))
    return 0


if __name__ == "__main__":
    sys.exit(main())
