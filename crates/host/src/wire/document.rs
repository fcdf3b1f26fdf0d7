//! The OpenAPI document: what it says of an operation is the operation's own.

use crate::api::API_VERSION;
use crate::ops::{Operation, Visit, every};
use axum::http::Method;
use std::collections::BTreeMap;
use utoipa::OpenApi;
use utoipa::PartialSchema;
use utoipa::openapi::path::{OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{Components, Schema};
use utoipa::openapi::{Content, HttpMethod, RefOr, Required, ResponseBuilder};

#[derive(OpenApi)]
#[openapi(info(
    title = "weft control API",
    description = "Storage pools and virtual disks. Errors have the form of `ApiError`."
))]
struct Document;

/// The document of everything the server answers.
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    every(&mut Writing(&mut document));
    document
}

/// The method of an operation, as HTTP has it.
pub(super) fn method(method: &HttpMethod) -> Method {
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Post => Method::POST,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
        _ => unreachable!("no operation uses another"),
    }
}

/// A document that is being written.
struct Writing<'a>(&'a mut utoipa::openapi::OpenApi);

impl Visit for Writing<'_> {
    fn visit<O: Operation>(&mut self) {
        let described = O::described();
        let body = described.body.map(|schema| {
            let content = Content::new(Some(schema));
            RequestBodyBuilder::new().content(JSON, content).required(Some(Required::True)).build()
        });
        let answer = ResponseBuilder::new().content(JSON, Content::new(Some(described.answer))).build();
        let mut operation =
            OperationBuilder::new().operation_id(Some(O::NAME)).request_body(body).response("200", answer);
        for name in O::PATH.split('/').filter_map(|word| word.strip_prefix('{')?.strip_suffix('}')) {
            let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path);
            operation = operation.parameter(parameter.required(Required::True).schema(Some(String::schema())).build());
        }
        operation = described.query.into_iter().fold(operation, OperationBuilder::parameter);
        let path = format!("/{API_VERSION}{}", O::PATH);
        self.0.paths.add_path_operation(path, vec![O::METHOD], operation.build());
        let components = self.0.components.get_or_insert_with(Components::new);
        components.schemas.extend(described.schemas.into_iter().collect::<BTreeMap<String, RefOr<Schema>>>());
    }
}

const JSON: &str = "application/json";
