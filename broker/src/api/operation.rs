//! What is said of one operation of the API.

use axum::http::{Method, StatusCode};
use rgpu_control::api::ErrorCode;
use rgpu_control::token::Role;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Who may call an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Anybody.
    Open,
    /// Whoever has a role token.
    Any,
    /// Administrators and these.
    Roles(&'static [Role]),
    /// Whoever has a role token, or anybody, as configured.
    Metrics,
}

/// What an operation answers when all went well.
pub(super) enum Success {
    /// Nothing.
    Nothing,
    /// A value.
    One(Named),
    /// A list of values.
    List(Named),
    /// Events, each with such data.
    Events(Named),
    /// Text of a media type.
    Text(&'static str),
}

/// A type's schema, and those it needs.
pub(super) struct Named {
    pub name: String,
    pub schemas: Vec<(String, RefOr<Schema>)>,
}

impl Named {
    fn of<T: ToSchema>() -> Self {
        let mut schemas = vec![(T::name().into_owned(), <T as PartialSchema>::schema())];
        T::schemas(&mut schemas);
        Self { name: T::name().into_owned(), schemas }
    }
}

/// A parameter in the query.
pub(super) struct Parameter {
    pub name: &'static str,
    pub about: &'static str,
    /// Whether it is `true` or `false`; else it is a number.
    pub flag: bool,
}

/// One operation.
pub(super) struct Operation {
    pub method: Method,
    pub path: &'static str,
    pub id: &'static str,
    pub summary: &'static str,
    pub access: Access,
    pub query: Vec<Parameter>,
    pub body: Option<Named>,
    pub status: StatusCode,
    pub success: Success,
    pub errors: Vec<ErrorCode>,
}

impl Operation {
    /// Something that whoever has a token may do.
    pub(super) fn new(method: Method, path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self {
            method,
            path,
            id,
            summary,
            access: Access::Any,
            query: Vec::new(),
            body: None,
            status: StatusCode::OK,
            success: Success::Nothing,
            errors: Vec::new(),
        }
    }

    pub(super) fn access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    pub(super) fn open(self) -> Self {
        self.access(Access::Open)
    }

    /// Administrators may do everything, and need not be named.
    pub(super) fn roles(self, roles: &'static [Role]) -> Self {
        self.access(Access::Roles(roles))
    }

    pub(super) fn query(mut self, name: &'static str, about: &'static str) -> Self {
        self.query.push(Parameter { name, about, flag: false });
        self
    }

    pub(super) fn flag(mut self, name: &'static str, about: &'static str) -> Self {
        self.query.push(Parameter { name, about, flag: true });
        self
    }

    pub(super) fn takes<T: ToSchema>(self) -> Self {
        Self { body: Some(Named::of::<T>()), ..self }
    }

    pub(super) fn answers<T: ToSchema>(self) -> Self {
        Self { success: Success::One(Named::of::<T>()), ..self }
    }

    pub(super) fn creates<T: ToSchema>(self) -> Self {
        Self { status: StatusCode::CREATED, ..self.answers::<T>() }
    }

    pub(super) fn answers_list<T: ToSchema>(self) -> Self {
        Self { success: Success::List(Named::of::<T>()), ..self }
    }

    pub(super) fn streams<T: ToSchema>(self) -> Self {
        Self { success: Success::Events(Named::of::<T>()), ..self }
    }

    pub(super) fn answers_text(self, kind: &'static str) -> Self {
        Self { success: Success::Text(kind), ..self }
    }

    pub(super) fn answers_nothing(self) -> Self {
        Self { status: StatusCode::NO_CONTENT, success: Success::Nothing, ..self }
    }

    pub(super) fn fails(self, errors: &[ErrorCode]) -> Self {
        Self { errors: errors.to_vec(), ..self }
    }
}
