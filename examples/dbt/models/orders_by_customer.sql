{{ config(materialized='ephemeral') }}
select
    customer_id,
    count(*) as orders,
    sum(amount) as amount,
    max(placed_on) as last_order
from {{ ref('stg_orders') }}
group by 1
