-- Invoice lines of a British gift shop, December 2010 to February 2011, one CSV file a day.
-- Origin: databricks/Spark-The-Definitive-Guide on GitHub (Apache-2.0). Unpack the archive first:
--
--   tar xzf data/retail/2010-12_2011-02.tar.gz -C data/retail
--
-- The question: which ten products earned most in the last seven days, looked at every day?
-- Invoices whose number begins with C are returns, and lines without a price are corrections of
-- the stock. Columns are declared so that prices stay exact and product codes stay text.

CREATE STREAM sales (
    InvoiceNo VARCHAR,
    StockCode VARCHAR,
    Description VARCHAR,
    Quantity INTEGER,
    InvoiceDate TIMESTAMP,
    UnitPrice DECIMAL(10, 2),
    CustomerID DOUBLE,
    Country VARCHAR
  )
  FROM 'data/retail/*.csv'
  FORMAT csv TIMESTAMP InvoiceDate;

CREATE JOB best_sellers AS
SELECT StockCode AS product,
       any_value(Description) AS description,
       sum(Quantity) AS sold,
       sum(Quantity * UnitPrice) AS pounds,
       count(DISTINCT InvoiceNo) AS invoices
FROM sales
WHERE NOT starts_with(InvoiceNo, 'C') AND UnitPrice > 0
GROUP BY product
ORDER BY pounds DESC, product
LIMIT 10
WINDOW 7 DAYS EVERY 1 DAY;
