-- Requests to NASA's web server in the first hours of July 1995, tab separated: 9,999 rows.
-- Origin: jleetutorial/python-spark-tutorial on GitHub.
--
-- The question: which pages, pictures left out, were read most in the last half hour, looked at
-- every ten minutes? Times are seconds since 1970. The rows have two empty fields more than the
-- header names; they are called column8 and column9 and need not be read.

CREATE STREAM hits FROM 'data/nasa/nasa_19950701.tsv.gz'
  FORMAT csv (DELIMITER '\t') TIMESTAMP time;

CREATE JOB popular_pages AS
SELECT url,
       count(*) AS hits,
       count(DISTINCT host) AS readers,
       sum(bytes) AS bytes
FROM hits
WHERE response = 200 AND NOT regexp_matches(url, '\.(gif|jpe?g|xbm|mpg|wav)$')
GROUP BY url
ORDER BY hits DESC, url
LIMIT 10
WINDOW 30 MINUTES EVERY 10 MINUTES;
