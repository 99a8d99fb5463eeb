//! The broker over real connections: its API, who may do what, bad input, encryption, and how it stops.

mod dashboards;
mod door;
mod engines;
mod malformed;
mod metrics;
mod openapi;
mod packaging;
mod requests;
mod roles;
mod stop;
mod support;
mod tls;
mod web;
