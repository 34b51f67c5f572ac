SELECT window.start AS minute, country, count(*) AS orders, sum(amount) AS amount
FROM enriched
GROUP BY window(at, '1 minute'), country
