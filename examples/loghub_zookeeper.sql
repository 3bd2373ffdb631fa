-- Lines of a ZooKeeper server's log: 2,000 of them, from four weeks of summer 2015.
-- Origin: logpai/loghub on GitHub (free for research; cite Zhu et al., "Loghub", ISSRE 2023).
--
-- The question: when does the ensemble lose its connections? For each day: warnings and errors,
-- broken connections, and how many of the peers they lead to.

CREATE STREAM zookeeper FROM 'data/loghub/Zookeeper_2k.log'
  FORMAT regex '^(?P<time>[\d-]+ [\d:,]+) - (?P<level>\w+) +\[(?P<thread>.*)\] - (?P<message>.*)$'
  TIMESTAMP time;

CREATE JOB lost_connections AS
SELECT count(*) FILTER (WHERE level = 'WARN') AS warnings,
       count(*) FILTER (WHERE level = 'ERROR') AS errors,
       count(*) FILTER (WHERE message LIKE 'Connection broken%') AS broken,
       count(DISTINCT regexp_extract(message, 'Connection broken for id (\d+)', 1))
         FILTER (WHERE message LIKE 'Connection broken%') AS peers
FROM zookeeper
WINDOW 1 DAY;
