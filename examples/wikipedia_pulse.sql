-- Edits of all Wikipedias on 12 September 2015, one JSON object each: 39,244 edits of a sample.
-- Origin: apache/druid on GitHub (Apache-2.0), the data of its tutorial.
--
-- The question: is something going on right now? The same numbers for the last ten minutes, the
-- last hour and the last day, side by side; `window_name` tells them apart. All three windows are
-- made of the same panes of ten minutes, so every record is aggregated once.

CREATE STREAM edits FROM 'data/wikipedia/wikiticker-2015-09-12-sampled.json.gz'
  FORMAT json TIMESTAMP time;

CREATE JOB pulse AS
SELECT count(*) AS edits,
       sum(delta) AS characters_gained,
       count(DISTINCT page) AS pages
FROM edits
WHERE NOT isRobot
WINDOW 10 MINUTES, 1 HOUR EVERY 10 MINUTES, 1 DAY EVERY 1 HOUR;
