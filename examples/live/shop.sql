-- Three applications over one stream of clicks, likes and buys, of which the third joins the
-- results of the other two (Fig. 1 of ELF, USENIX ATC 2014). `python examples/live/shop.py` writes
-- the logs, runs this file, and asks questions while it runs.

CREATE STREAM events (ts BIGINT, type VARCHAR, visitor VARCHAR, product VARCHAR)
  FROM 'logs/{source}.jsonl' FORMAT json TIMESTAMP ts IN SECONDS;

-- Micro-promotion, a batch every five minutes: what gets a discount because it is clicked most.
CREATE JOB micro_promotion AS
SELECT product, count(*) AS clicks FROM events WHERE type = 'click'
GROUP BY product ORDER BY clicks DESC, product LIMIT 5
WINDOW 5 MINUTES;

-- Product bundling, over a sliding window: what the same visitors like or buy. It is shown as it
-- changes, and not only when a window is over.
CREATE JOB product_bundling AS
WITH wanted AS (
  SELECT visitor, product FROM events WHERE type IN ('like', 'buy') GROUP BY visitor, product
)
SELECT a.product, b.product AS peer, count(*) AS visitors
FROM wanted a JOIN wanted b ON a.visitor = b.visitor AND a.product <> b.product
GROUP BY a.product, b.product
ORDER BY visitors DESC, a.product, peer LIMIT 50
WINDOW 10 MINUTES EVERY 5 MINUTES EMIT CHANGES;

-- Sale prediction: how a product's peers do, which tells how it may sell. `SET` asks of another.
CREATE JOB sale_prediction (product DEFAULT 'angry birds') AS
SELECT together.peer AS product, together.visitors, popular.clicks, coalesce(sold.buys, 0) AS buys
FROM LATEST(product_bundling) together
LEFT JOIN LATEST(micro_promotion) popular ON popular.product = together.peer
LEFT JOIN (SELECT product, count(*) AS buys FROM events WHERE type = 'buy' GROUP BY product) sold
  ON sold.product = together.peer
WHERE together.product = $product
ORDER BY together.visitors DESC, product
WINDOW 1 MINUTE;
