{{ config(materialized='incremental', unique_key='placed_on',
          meta={'changelog': {'sinks': ['delta', 'postgres']}}) }}
select placed_on, count(*) as orders, sum(amount) as amount
from {{ ref('stg_orders') }}
{% if is_incremental() %}
where placed_on >= (select max(placed_on) from {{ this }})
{% endif %}
group by placed_on
