"""A year of flights and weather from New York's airports, on one timeline.

Run it from a folder that has `landing/flights` and `landing/weather`:

    tidegauge run flow.py
"""

import tidegauge as tg

FLIGHTS = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int,
    arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int,
    distance int, hour int, minute int, time_hour timestamp
"""
WEATHER = """
    origin string, year int, month int, day int, hour int, temp double, dewp double, humid double, wind_dir double,
    wind_speed double, wind_gust double, precip double, pressure double, visib double, time_hour timestamp
"""

flow = tg.Dataflow("flights", store="sqlite:///flights.db")

flights = flow.source(
    "flights",
    tg.FileSource("landing/flights/*.csv", format=tg.Csv(FLIGHTS, null="NA"), metadata=True),
)
weather = flow.source("weather", tg.FileSource("landing/weather/*.csv", format=tg.Csv(WEATHER, null="NA")))

flow.sink("flights", flights, tg.DeltaSink("lake/flights"))
flow.sink(
    "late_flights",
    flights.filter("arr_delay > 60").select(
        "carrier", "flight", "origin", "dest", "time_hour", "arr_delay / 60 AS hours_late", "_partition", "_offset"
    ),
    tg.DeltaSink("lake/late_flights"),
)
flow.sink("weather", weather, tg.DeltaSink("lake/weather"))
