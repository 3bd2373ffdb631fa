-- Three standing questions about a web shop's servers. {source} is the server's name.
CREATE STREAM shop FROM '{folder}/{source}/events.jsonl'
  FORMAT json TIMESTAMP ts SLACK 500 MILLISECONDS;

-- What sells now?
CREATE JOB top_products AS
SELECT product, sum(clicks) AS clicks, approx_count_distinct(user) AS users
FROM shop WHERE store = 'video_games'
GROUP BY product ORDER BY clicks DESC LIMIT 5
WINDOW 30 SECONDS EVERY 2 SECONDS;

-- Which server is in trouble?
CREATE JOB error_rate AS
SELECT source AS server, count(*) AS requests,
       100.0 * count(*) FILTER (WHERE status >= 500) / count(*) AS error_percent
FROM shop GROUP BY source
WINDOW 10 SECONDS EVERY 2 SECONDS;

-- Where do users wait?
CREATE JOB slow_endpoints AS
SELECT endpoint, approx_quantile(latency_ms, 0.5) AS p50_ms, approx_quantile(latency_ms, 0.99) AS p99_ms
FROM shop GROUP BY endpoint ORDER BY p99_ms DESC
WINDOW 10 SECONDS EVERY 2 SECONDS;
