-- DNS requests that a Zeek sensor saw on a network under attack: 53,615 JSON records.
-- Origin: brimdata/zed-sample-data on GitHub (CC BY-SA 4.0).
--
-- The question: which machines ask for names that do not exist? Many of them in a short time
-- is how malware looks for its masters, and how a wrong search domain looks, too.
--
-- Zeek writes a request down when its answer came or was given up, up to eleven minutes after
-- the request: its time is `ts`, and SLACK 12 MINUTES waits for all of them. Field names with
-- dots, such as id.orig_h, are written in double quotes.

CREATE STREAM dns FROM 'data/zeek/dns.json.gz'
  FORMAT json TIMESTAMP ts SLACK 12 MINUTES;

CREATE JOB lost_clients AS
SELECT "id.orig_h" AS client,
       count(*) AS requests,
       count(*) FILTER (WHERE rcode_name = 'NXDOMAIN') AS unknown,
       count(DISTINCT query) FILTER (WHERE rcode_name = 'NXDOMAIN') AS names,
       median(rtt) * 1000 AS median_ms
FROM dns
GROUP BY client
HAVING unknown > 0
ORDER BY unknown DESC, client
LIMIT 10
WINDOW 5 MINUTES;
