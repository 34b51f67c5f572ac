SELECT id, upper(trim(customer)) AS customer, amount, at, _origin.schema_id AS schema_id
FROM raw_orders
