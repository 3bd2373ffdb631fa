-- Edits of all Wikipedias on 12 September 2015, one JSON object each: 39,244 edits of a sample.
-- Origin: apache/druid on GitHub (Apache-2.0), the data of its tutorial.
--
-- The question: which five language editions are busiest over the last hour, looked at every
-- ten minutes, and how much of that is people rather than robots?

CREATE STREAM edits FROM 'data/wikipedia/wikiticker-2015-09-12-sampled.json.gz'
  FORMAT json TIMESTAMP time;

CREATE JOB busy_editions AS
SELECT channel,
       count(*) AS edits,
       count(*) FILTER (WHERE isRobot) / count(*) AS robot_share,
       count(DISTINCT user) FILTER (WHERE NOT isRobot) AS people,
       sum(delta) AS characters_gained
FROM edits
GROUP BY channel
ORDER BY edits DESC, channel
LIMIT 5
WINDOW 1 HOUR EVERY 10 MINUTES;
