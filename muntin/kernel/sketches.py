"""The two sketches, as relations: rows (sub-key, cell) that merge by MAX or SUM.

Distinct counts are HyperLogLog with 2^14 registers: standard error 0.81 %. The sub-key is the
register and the cell its largest rank; registers never hit have no row, so small sets are
small. The estimate is Ertl's (arXiv:1702.01284), which needs no bias tables.

Quantiles are DDSketch (VLDB 2019) with relative error 0.5 %: the sub-key is a logarithmic
bucket, the cell a count. Buckets are ordered as the values are: negative numbers count down
from zero, positive ones up.
"""

from __future__ import annotations

from math import log

REGISTER_BITS = 14
REGISTERS = 1 << REGISTER_BITS
RELATIVE_ERROR = 0.005
_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_GAMMA = log(_GAMMA)
# Buckets of positive values start here, those of negative values end at minus this: exponents
# of doubles lie within +-1100 / log2(gamma), so the two ranges never meet.
_OFFSET = 1 << 20


# The arithmetic as DuckDB macros, which every connection has, so that statements stay readable.
_RANKS = 64 - REGISTER_BITS + 1
MACROS = (
    # 64 bits that are the same on every machine and in every version of DuckDB.
    "stable_hash(text) AS md5_number_lower(text)",
    f"hll_register(text) AS CAST(stable_hash(text) & {REGISTERS - 1} AS SMALLINT)",
    # One more than the number of trailing zeros in the hash's other 50 bits.
    f"hll_rest(text) AS CAST(stable_hash(text) >> {REGISTER_BITS} AS BIGINT)",
    f"hll_rank(text) AS CAST(CASE WHEN hll_rest(text) = 0 THEN {_RANKS} "
    "ELSE 1 + log2(hll_rest(text) & -hll_rest(text)) END AS TINYINT)",
    # sigma(x) = x + sum of x^(2^k) 2^(k-1); 60 terms are exact for every x below 1.
    "hll_sigma(x) AS x + list_sum("
    "list_transform(range(1, 61), lambda k: pow(x, pow(2, k)) * pow(2, k - 1)))",
    f"hll_estimate(hit, harmonic) AS CAST(round({REGISTERS**2 / (2 * log(2))} / "
    f"({REGISTERS} * hll_sigma(({REGISTERS} - hit) / {REGISTERS}.0) + harmonic)) AS BIGINT)",
    # Infinities fall into the outermost buckets.
    "dd_size(x) AS CAST(ceil("
    f"ln(least(abs(x), 1.7976931348623157e308)) / {_LOG_GAMMA!r}) AS INTEGER)",
    f"dd_bucket(x) AS CASE WHEN x > 0 THEN {_OFFSET} + dd_size(x) "
    f"WHEN x < 0 THEN -({_OFFSET} + dd_size(x)) ELSE 0 END",
    # Within the relative error of everything in the bucket.
    "dd_value(b) AS sign(b) * CASE WHEN b = 0 THEN 0.0 "
    f"ELSE 2 * pow({_GAMMA!r}, abs(b) - {_OFFSET}) / {_GAMMA + 1!r} END",
)


def stable_hash_sql(text_sql: str) -> str:
    return f"stable_hash({text_sql})"


def register_sql(value_sql: str) -> str:
    """The register a value falls into."""
    return f"hll_register(CAST({value_sql} AS VARCHAR))"


def rank_sql(value_sql: str) -> str:
    """What a value adds to its register."""
    return f"hll_rank(CAST({value_sql} AS VARCHAR))"


def distinct_estimate_sql(rank_column: str) -> str:
    """Ertl's improved estimate over the rows of a key's registers."""
    return f"hll_estimate(count(*), sum(pow(2.0, -{rank_column})))"


def bucket_sql(value_sql: str) -> str:
    """The bucket of a number."""
    return f"dd_bucket(CAST({value_sql} AS DOUBLE))"


def bucket_value_sql(bucket_column: str) -> str:
    """The value that stands for a bucket."""
    return f"dd_value({bucket_column})"
