-- Traffic that breaks protocol rules, as a Zeek sensor saw it: 24,202 JSON records.
-- Origin: brimdata/zed-sample-data on GitHub (CC BY-SA 4.0).
--
-- The question: which kinds of odd traffic are most frequent each minute, and do they come from
-- one machine or from many? A kind that jumps is a scan, a fuzzer or a broken device.
--
-- These records have a field `source` (the part of Zeek that spoke up) of their own, so it
-- takes the place of the column that names the server.

CREATE STREAM weird FROM 'data/zeek/weird.json.gz'
  FORMAT json TIMESTAMP ts;

CREATE JOB odd_traffic AS
SELECT name,
       coalesce(source, 'unknown') AS analyzer,
       count(*) AS events,
       count(DISTINCT "id.orig_h") AS machines,
       mode("id.orig_h") AS loudest
FROM weird
GROUP BY name, analyzer
ORDER BY events DESC, name, analyzer
LIMIT 5
WINDOW 1 MINUTE;
