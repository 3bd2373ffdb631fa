-- Lines of a Spark executor's log: 2,000 of them, half a minute of June 2017.
-- Origin: logpai/loghub on GitHub (free for research; cite Zhu et al., "Loghub", ISSRE 2023).
--
-- The question: what does the executor get done, and does its cache help? For each five seconds:
-- tasks finished, the bytes they sent back, and cached blocks that were there or missing.

CREATE STREAM executor FROM 'data/loghub/Spark_2k.log'
  FORMAT regex '^(?P<time>\d\d/\d\d/\d\d \d\d:\d\d:\d\d) (?P<level>\w+) (?P<component>[^:]+): (?P<message>.*)$'
  TIMESTAMP strptime(time, '%y/%m/%d %H:%M:%S');

CREATE JOB executor_work AS
SELECT count(*) FILTER (WHERE message LIKE 'Finished task %') AS finished,
       coalesce(sum(TRY_CAST(regexp_extract(message, ' (\d+) bytes result', 1) AS BIGINT)), 0)
         AS result_bytes,
       count(*) FILTER (WHERE message LIKE 'Found block rdd%') AS cache_hits,
       count(*) FILTER (WHERE message LIKE 'Partition rdd%not found%') AS cache_misses
FROM executor
WINDOW 5 SECONDS;
