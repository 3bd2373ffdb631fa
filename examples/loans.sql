-- Loans between private people in the first quarter of 2018: 10,000 rows of CSV.
-- Origin: OpenIntro (GPL-3), from the records of Lending Club.
--
-- The question: how much is lent each week at each grade of risk, at what rate, and how many
-- of the loans are in trouble?
--
-- The data knows only the month of a loan, so the stream makes a clock: it spreads a month's
-- loans over its first 28 days by the digits of the borrower's credit limit. Any expression may
-- stand after TIMESTAMP.

CREATE STREAM loans FROM 'data/loans/loans_full_schema.csv.gz'
  FORMAT csv
  TIMESTAMP strptime('01-' || issue_month, '%d-%b-%Y') + to_days(total_credit_limit % 28);

CREATE JOB lending_by_grade AS
SELECT grade,
       count(*) AS loans,
       sum(loan_amount) AS lent,
       sum(loan_amount * interest_rate) / sum(loan_amount) AS mean_rate,
       count(*) FILTER (WHERE loan_status LIKE 'Late%' OR loan_status = 'Charged Off') AS in_trouble
FROM loans
GROUP BY grade
ORDER BY grade
WINDOW 7 DAYS;
