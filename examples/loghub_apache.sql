-- Lines of an Apache web server's error log: 2,000 of them, from two days of December 2005.
-- Origin: logpai/loghub on GitHub (free for research; cite Zhu et al., "Loghub", ISSRE 2023).
--
-- The question: which errors does the server report each hour? Numbers and addresses are taken
-- out of the messages, so that one kind of error is one row.

CREATE STREAM errors FROM 'data/loghub/Apache_2k.log'
  FORMAT regex '^\[(?P<time>[^\]]+)\] \[(?P<level>\w+)\] (?P<message>.*)$'
  TIMESTAMP strptime(time, '%a %b %d %H:%M:%S %Y');

CREATE JOB error_kinds AS
SELECT regexp_replace(message, '-?\d+(\.\d+)*', '#', 'g') AS kind,
       count(*) AS times
FROM errors
WHERE level = 'error'
GROUP BY kind
ORDER BY times DESC, kind
LIMIT 5
WINDOW 1 HOUR;
