-- Yellow taxi trips in New York, January to June 2019: six samples of 10,000 trips, shuffled.
-- Origin: great-expectations/great_expectations on GitHub (Apache-2.0), from the city's records.
--
-- The question: what does a week bring in, how are trips paid, and how generous are the riders?
-- Trips whose meter was never stopped, or that end before they begin, say nothing about speed,
-- so the speed leaves them out. {source} is the month here: one file is one source.

CREATE STREAM trips FROM 'data/taxi/yellow_tripdata_sample_{source}.csv.gz'
  FORMAT csv TIMESTAMP pickup_datetime;

CREATE JOB weekly_takings AS
SELECT CASE payment_type WHEN 1 THEN 'card' WHEN 2 THEN 'cash' ELSE 'other' END AS paid_by,
       count(*) AS trips,
       sum(total_amount) AS dollars,
       sum(tip_amount) / sum(fare_amount) AS tip_share,
       approx_quantile(trip_distance / (epoch(dropoff_datetime - pickup_datetime) / 3600), 0.5)
         FILTER (WHERE dropoff_datetime - pickup_datetime
                 BETWEEN INTERVAL 1 MINUTE AND INTERVAL 6 HOURS) AS median_mph
FROM trips
GROUP BY paid_by
ORDER BY paid_by
WINDOW 7 DAYS;
