select
    id as order_id,
    customer as customer_id,
    date_trunc('day', placed)::date as placed_on,
    amount
from {{ source('shop', 'orders') }}
where not cancelled
