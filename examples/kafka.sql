-- Server logs of three Kafka brokers, rotated every hour, with stack traces and settings between.
-- Origin: elastic/examples on GitHub (Apache-2.0). Unpack the archives first:
--
--   for broker in 0 1 2; do tar xzf data/kafka/kafka$broker.tar.gz -C data/kafka; done
--
-- The question: which broker is in trouble, and what did it say last? Lines without a time
-- of their own (stack traces, listed settings) do not match the expression and count as bad.

CREATE STREAM brokers FROM 'data/kafka/{source}/logs/server.log*'
  FORMAT regex '^\[(?P<time>[^\]]+)\] (?P<level>[A-Z]+) (?P<message>.*)$'
  TIMESTAMP time;

CREATE JOB broker_trouble AS
SELECT source AS broker,
       count(*) AS lines,
       count(*) FILTER (WHERE level = 'WARN') AS warnings,
       count(*) FILTER (WHERE level IN ('ERROR', 'FATAL')) AS errors,
       last(message) FILTER (WHERE level <> 'INFO') AS latest
FROM brokers
GROUP BY broker
HAVING warnings + errors > 0
ORDER BY errors DESC, warnings DESC, broker
WINDOW 1 HOUR;
