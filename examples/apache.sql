-- Four days of a web server's access log in the combined format: 10,000 lines.
-- Origin: elastic/examples on GitHub (Apache-2.0).
--
-- The question: is the site well? For each hour: requests, visitors, bytes, and the share of
-- requests that failed. Lines are up to 59 seconds out of order, which SLACK 1 MINUTE allows
-- for; one line was cut off, and is skipped and counted as bad.

CREATE STREAM requests FROM 'data/apache/apache_logs.gz'
  FORMAT combined SLACK 1 MINUTE ON BAD ROW SKIP;

CREATE JOB site_health AS
SELECT count(*) AS requests,
       count(DISTINCT host) AS visitors,
       sum(bytes) AS bytes,
       count(*) FILTER (WHERE status BETWEEN 400 AND 499) / count(*) AS refused_share,
       count(*) FILTER (WHERE status >= 500) AS server_errors
FROM requests
WINDOW 1 HOUR;
