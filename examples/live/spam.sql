-- Who publishes the most "sales"? From here, `python examples/live/spam.py` zooms in while it runs, as
-- section 4.1 of ELF (USENIX ATC 2014) does with Twitter's public stream.

CREATE STREAM posts (ts BIGINT, publisher VARCHAR, label VARCHAR, location VARCHAR,
                     followers BIGINT)
  FROM 'logs/{source}.jsonl' FORMAT json TIMESTAMP ts IN SECONDS;

CREATE JOB campaign AS
SELECT publisher, count(*) AS posts FROM posts WHERE label = 'sales'
GROUP BY publisher ORDER BY posts DESC, publisher LIMIT 5
WINDOW 1 MINUTE;
