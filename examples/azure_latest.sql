-- Requests to a language model that writes code, one hour of one day: 8,819 rows of CSV.
-- Origin: Azure/AzurePublicDataset on GitHub (Creative Commons), the trace AzureLLMInferenceTrace_code.
--
-- The question: what do the last thousand requests look like, whenever 250 more have come? Counted
-- windows weigh quiet and busy times alike; their start and end are numbers of records.

CREATE STREAM prompts FROM 'data/azure/AzureLLMInferenceTrace_code.csv'
  FORMAT csv TIMESTAMP "TIMESTAMP";

CREATE JOB latest_requests AS
SELECT count(*) AS requests,
       avg(ContextTokens) AS prompt,
       median(GeneratedTokens) AS reply,
       max("TIMESTAMP") AS until
FROM prompts
WINDOW 1000 RECORDS EVERY 250;
