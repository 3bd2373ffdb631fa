-- Lines of a Hadoop file system's log: 2,000 of them, over a day and a half of November 2008.
-- Origin: logpai/loghub on GitHub (free for research; cite Zhu et al., "Loghub", ISSRE 2023).
--
-- The question: how much is written each hour, and how often does serving a block fail? The size
-- and the failure stand in the message, so the job takes them out of it.

CREATE STREAM hdfs FROM 'data/loghub/HDFS_2k.log'
  FORMAT regex '^(?P<date>\d{6}) (?P<time>\d{6}) (?P<thread>\d+) (?P<level>\w+) (?P<component>[^:]+): (?P<message>.*)$'
  TIMESTAMP strptime(date || time, '%y%m%d%H%M%S');

CREATE JOB block_traffic AS
SELECT count(*) FILTER (WHERE message LIKE 'Received block %') AS blocks_received,
       coalesce(sum(TRY_CAST(regexp_extract(message, ' of size (\d+)', 1) AS BIGINT))
                FILTER (WHERE message LIKE 'Received block %'), 0) AS bytes_received,
       count(*) FILTER (WHERE message LIKE '%Served block %') AS blocks_served,
       count(*) FILTER (WHERE message LIKE '%exception while serving%') AS failures
FROM hdfs
WINDOW 1 HOUR;
