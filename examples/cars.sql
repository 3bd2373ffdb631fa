-- Ride events of one day: a driver picks a passenger up or drops one off.
-- Origin: ArroyoSystems/arroyo on GitHub (MIT or Apache-2.0), where it tests a stream engine.
--
-- The question: how many pickups and dropoffs are there every hour? Events are up to 23 seconds
-- out of order, so half a minute of slack loses none when the log is followed live.

CREATE STREAM rides FROM 'data/cars/cars.json.gz'
  FORMAT json TIMESTAMP timestamp SLACK 30 SECONDS;

CREATE JOB rides_by_hour AS
SELECT event_type, count(*) AS rides
FROM rides
GROUP BY event_type
ORDER BY event_type
WINDOW 1 HOUR;
