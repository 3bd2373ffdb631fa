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


def stable_hash_sql(text_sql: str) -> str:
    """64 bits that are the same on every machine and in every version of DuckDB."""
    return f"md5_number_lower({text_sql})"


def register_sql(value_sql: str) -> str:
    """The register a value falls into."""
    return f"CAST({_hash_sql(value_sql)} & {REGISTERS - 1} AS SMALLINT)"


def rank_sql(value_sql: str) -> str:
    """One more than the number of trailing zeros in the hash's other 50 bits."""
    rest = f"CAST({_hash_sql(value_sql)} >> {REGISTER_BITS} AS BIGINT)"
    lowest_bit = f"(({rest}) & -({rest}))"
    ranks = 64 - REGISTER_BITS + 1
    return f"CAST(CASE WHEN {rest} = 0 THEN {ranks} ELSE 1 + log2({lowest_bit}) END AS TINYINT)"


def distinct_estimate_sql(rank_column: str) -> str:
    """Ertl's improved estimate over the rows of a key's registers."""
    m = REGISTERS
    empty_share = f"(({m} - count(*)) / {m}.0)"
    # sigma(x) = x + sum of x^(2^k) 2^(k-1); 60 terms are exact for every x below 1.
    terms = f"list_transform(range(1, 61), lambda k: pow({empty_share}, pow(2, k)) * pow(2, k - 1))"
    sigma = f"({empty_share} + list_sum({terms}))"
    filled = f"sum(pow(2.0, -{rank_column}))"
    return f"CAST(round({m * m / (2 * log(2))} / ({m} * {sigma} + {filled})) AS BIGINT)"


def bucket_sql(value_sql: str) -> str:
    """The bucket of a number; infinities fall into the outermost ones."""
    x = f"CAST({value_sql} AS DOUBLE)"
    size = f"CAST(ceil(ln(least(abs({x}), 1.7976931348623157e308)) / {_LOG_GAMMA!r}) AS INTEGER)"
    return (
        f"CASE WHEN {x} > 0 THEN {_OFFSET} + {size} "
        f"WHEN {x} < 0 THEN -({_OFFSET} + {size}) ELSE 0 END"
    )


def bucket_value_sql(bucket_column: str) -> str:
    """The value that stands for a bucket, within the relative error of everything in it."""
    size = f"(2 * pow({_GAMMA!r}, abs({bucket_column}) - {_OFFSET}) / {_GAMMA + 1!r})"
    return f"(sign({bucket_column}) * CASE WHEN {bucket_column} = 0 THEN 0.0 ELSE {size} END)"


def _hash_sql(value_sql: str) -> str:
    return stable_hash_sql(f"CAST({value_sql} AS VARCHAR)")
