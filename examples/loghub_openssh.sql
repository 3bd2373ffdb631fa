-- Lines of an SSH server's log under attack: 2,000 of them, one morning in December.
-- Origin: logpai/loghub on GitHub (free for research; cite Zhu et al., "Loghub", ISSRE 2023).
--
-- The question: which addresses guess passwords, over the last ten minutes and looked at every
-- minute, and how many names do they try? The lines have no year, as usual in syslog: the stream
-- puts one in front.

CREATE STREAM sshd FROM 'data/loghub/OpenSSH_2k.log'
  FORMAT regex '^(?P<time>\w{3} +\d+ [\d:]+) (?P<host>\S+) sshd\[(?P<pid>\d+)\]: (?P<message>.*)$'
  TIMESTAMP strptime('2017 ' || time, '%Y %b %d %H:%M:%S');

CREATE JOB password_guessing AS
SELECT regexp_extract(message, ' from (\S+) port', 1) AS address,
       count(*) AS failures,
       count(DISTINCT regexp_extract(message, 'for (?:invalid user )?(.*) from ', 1)) AS names
FROM sshd
WHERE message LIKE 'Failed password for %'
GROUP BY address
HAVING failures >= 5
ORDER BY failures DESC, address
WINDOW 10 MINUTES EVERY 1 MINUTE;
