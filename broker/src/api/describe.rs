//! The OpenAPI description, made from the table of operations.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use rgpu_control::api::{ErrorBody, ErrorCode};
use rgpu_placement::PolicyTable;
use rgpu_placement::policy::Setting;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn, PathsBuilder};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, KnownFormat, ObjectBuilder, SchemaFormat, Type,
};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, Content, InfoBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Required, ResponseBuilder,
    Schema,
};
use utoipa::{PartialSchema, ToSchema};

use super::failure::status;
use super::operation::{Access, Named, Operation, Parameter, Success};
use super::table;

fn http_method(method: &Method) -> HttpMethod {
    match method.as_str() {
        "POST" => HttpMethod::Post,
        "PUT" => HttpMethod::Put,
        "PATCH" => HttpMethod::Patch,
        "DELETE" => HttpMethod::Delete,
        _ => HttpMethod::Get,
    }
}

fn reference(named: &Named) -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name(&named.name))
}

fn content(schema: impl Into<RefOr<Schema>>) -> Content {
    Content::new(Some(schema.into()))
}

/// The name between `{` and `}`.
fn in_path(path: &str) -> Option<&str> {
    path.split_once('{')?.1.split_once('}').map(|(name, _)| name)
}

fn query(parameter: &Parameter) -> utoipa::openapi::path::Parameter {
    let kind = if parameter.flag { Type::Boolean } else { Type::Integer };
    let mut schema = ObjectBuilder::new().schema_type(kind);
    if !parameter.flag {
        schema = schema.minimum(Some(0));
    }
    ParameterBuilder::new()
        .name(parameter.name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(parameter.about))
        .schema(Some(schema))
        .build()
}

fn success(operation: &Operation) -> utoipa::openapi::Response {
    let response = ResponseBuilder::new();
    match &operation.success {
        Success::Nothing => response.description("It is done"),
        Success::One(named) => {
            response.description(&named.name).content("application/json", content(reference(named)))
        }
        Success::List(named) => {
            let list = ArrayBuilder::new().items(reference(named));
            response.description(format!("List of {}", named.name)).content("application/json", content(list))
        }
        Success::Events(named) => {
            let about = format!(
                "Server-sent events: `id` is the number, `event` the kind, `data` the {} in JSON",
                named.name
            );
            response.description(about).content("text/event-stream", content(reference(named)))
        }
        Success::Text(kind) => {
            let text = ObjectBuilder::new().schema_type(Type::String);
            let text = if *kind == "application/json" { ObjectBuilder::new() } else { text };
            response.description("Text").content(*kind, content(Schema::from(text)))
        }
    }
    .build()
}

fn about(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::BadRequest => "bad_request: the request is malformed, or asks for nonsense",
        ErrorCode::Unauthorized => "unauthorized: no token, or a bad one",
        ErrorCode::Forbidden => "forbidden: the token's role or name may not do that",
        ErrorCode::NotFound => "not_found: there is no such thing, or not for this caller",
        ErrorCode::MethodNotAllowed => "method_not_allowed: the method is not for this path",
        ErrorCode::Conflict => "conflict: it contradicts what is",
        ErrorCode::TooLarge => "too_large: the body is too long",
        ErrorCode::Impossible => "impossible: it could never be granted",
        ErrorCode::Limit => "limit: the tenant's limit is reached",
        ErrorCode::Internal => "internal: the broker's own failure",
        ErrorCode::Unavailable => {
            "unavailable: the state cannot be stored, or the broker is stopping; try again later"
        }
    }
}

fn errors(operation: &Operation) -> Vec<ErrorCode> {
    let mut codes = vec![ErrorCode::Internal];
    if operation.access != Access::Open {
        codes.push(ErrorCode::Unauthorized);
    }
    if matches!(operation.access, Access::Roles(_)) {
        codes.push(ErrorCode::Forbidden);
    }
    if operation.body.is_some() {
        codes.push(ErrorCode::TooLarge);
    }
    if operation.body.is_some() || !operation.query.is_empty() || operation.path.contains('{') {
        codes.push(ErrorCode::BadRequest);
    }
    codes.extend(&operation.errors);
    codes.sort_by_key(|code| status(*code).as_u16());
    codes.dedup();
    codes
}

fn describe(operation: &Operation) -> utoipa::openapi::path::Operation {
    let who = match operation.access {
        Access::Open => "For everybody; no token is needed.".into(),
        Access::Any => "For every role.".into(),
        Access::Metrics => "For every role, or, if so configured (`open_metrics`), for everybody.".into(),
        Access::Roles([]) => "For the role admin.".into(),
        Access::Roles(roles) => {
            let names: Vec<_> = roles.iter().map(|role| role.name()).chain(["admin"]).collect();
            format!("For the roles {}.", names.join(" and "))
        }
    };
    let mut described = OperationBuilder::new()
        .operation_id(Some(operation.id))
        .summary(Some(operation.summary))
        .description(Some(who))
        .response(operation.status.as_str(), success(operation));
    if let Some(name) = in_path(operation.path) {
        let schema = ObjectBuilder::new().schema_type(Type::String);
        let schema = if name == "id" { schema.pattern(Some("^[0-9a-fA-F]{16}$")) } else { schema };
        described = described.parameter(
            ParameterBuilder::new()
                .name(name)
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .schema(Some(schema))
                .build(),
        );
    }
    for parameter in &operation.query {
        described = described.parameter(query(parameter));
    }
    if let Some(body) = &operation.body {
        let body = RequestBodyBuilder::new()
            .required(Some(Required::True))
            .content("application/json", content(reference(body)))
            .build();
        described = described.request_body(Some(body));
    }
    for code in errors(operation) {
        let schema = RefOr::Ref(Ref::from_schema_name("ErrorBody"));
        let response =
            ResponseBuilder::new().description(about(code)).content("application/json", content(schema));
        described = described.response(status(code).as_str(), response.build());
    }
    let bearer = SecurityRequirement::new::<_, _, String>("role_token", []);
    match operation.access {
        Access::Open => described.securities(Some([])),
        Access::Metrics => described.securities(Some([bearer, SecurityRequirement::default()])),
        _ => described.security(bearer),
    }
    .build()
}

/// The settings of policies as the table of policies has them.
fn policy_settings() -> RefOr<Schema> {
    let name = ObjectBuilder::new().schema_type(Type::String).description(Some("Its name."));
    let mut object = ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("The settings of the policy that decides."))
        .property("name", name)
        .required("name");
    for setting in PolicyTable::standard().broker_settings() {
        let value = match setting {
            Setting::Flag(_) => ObjectBuilder::new().schema_type(Type::Boolean),
            Setting::Number(_) => ObjectBuilder::new()
                .schema_type(Type::Number)
                .format(Some(SchemaFormat::KnownFormat(KnownFormat::Double))),
        };
        let value = value.description(Some(format!("{}.", setting.about())));
        object = object.property(setting.name(), value).required(setting.name());
    }
    object.additional_properties(Some(AdditionalProperties::FreeForm(false))).into()
}

/// The OpenAPI description of the API.
pub fn openapi() -> OpenApi {
    let mut paths = PathsBuilder::new().build();
    let mut schemas = BTreeMap::new();
    let mut list = vec![("ErrorBody".to_owned(), ErrorBody::schema())];
    ErrorBody::schemas(&mut list);
    for (operation, _) in table() {
        paths.add_path_operation(operation.path, vec![http_method(&operation.method)], describe(&operation));
        if let Some(body) = operation.body {
            list.extend(body.schemas);
        }
        match operation.success {
            Success::One(named) | Success::List(named) | Success::Events(named) => list.extend(named.schemas),
            Success::Nothing | Success::Text(_) => {}
        }
    }
    schemas.extend(list);
    schemas.insert("PolicySettings".into(), policy_settings());
    schemas.remove("SettingValue");
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A role token: `rgpu broker token`, or POST /v1/tokens"))
        .build();
    let components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme("role_token", SecurityScheme::Http(bearer))
        .build();
    let info = InfoBuilder::new()
        .title("rgpu broker")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Leases on local, remote and partitioned GPUs. Times are seconds since 1970, memory is in bytes, shares of a \
             device are thousandths, rates are Mbit/s.",
        ))
        .build();
    OpenApiBuilder::new().info(info).paths(paths).components(Some(components)).build()
}

/// The description as text; it never changes while the broker runs.
pub(super) static TEXT: LazyLock<String> = LazyLock::new(|| {
    let text = openapi().to_pretty_json();
    // Text, numbers, lists and maps with text keys always have a JSON form.
    text.expect("the description has a JSON form") + "\n"
});

pub(super) async fn serve() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}
