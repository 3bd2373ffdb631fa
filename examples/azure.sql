-- Requests to a language model that writes code, one hour of one day: 8,819 rows of CSV.
-- Origin: Azure/AzurePublicDataset on GitHub (Creative Commons), the trace AzureLLMInferenceTrace_code.
--
-- The question: how large are the bursts? For each minute, looked at every ten seconds: requests,
-- tokens to read and to write, and the prompt length that one request in a hundred exceeds.
-- Times have seven digits after the second; results keep microseconds.

CREATE STREAM prompts FROM 'data/azure/AzureLLMInferenceTrace_code.csv'
  FORMAT csv TIMESTAMP "TIMESTAMP";

CREATE JOB bursts AS
SELECT count(*) AS requests,
       sum(ContextTokens) AS tokens_read,
       sum(GeneratedTokens) AS tokens_written,
       approx_quantile(ContextTokens, 0.99) AS p99_prompt
FROM prompts
WINDOW 1 MINUTE EVERY 10 SECONDS;
