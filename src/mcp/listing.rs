//! What a server offers: its tools, within bounds, in an order that does not depend on the server's mood.

use std::time::Duration;

use rmcp::model::{
    ClientRequest, JsonObject, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool as ListedTool,
};
use rmcp::service::{Peer, PeerRequestOptions, ServiceError};
use rmcp::{RoleClient, model};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use super::describe;

/// Pages of one list.
const PAGES_MAX: usize = 64;
/// Tools of one server.
const TOOLS_MAX: usize = 512;
/// One tool's name, description and schema.
const NAME_BYTES_MAX: usize = 256;
const DESCRIPTION_BYTES_MAX: usize = 8 * 1024;
const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// A server's tool.
#[derive(Clone, Debug)]
pub struct RemoteTool {
    /// Its name at the server.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its parameters' schema: compact, the same for the same list.
    pub schema: Box<RawValue>,
    /// Whether the server says that it only reads.
    pub reads: bool,
}

/// Asks a server for all its tools. Past `deadline` it has failed.
///
/// # Errors
/// Why there is no list.
pub(super) async fn list(
    server: &str,
    peer: &Peer<RoleClient>,
    limit: Duration,
) -> Result<Vec<RemoteTool>, String> {
    let deadline = Instant::now() + limit;
    let late = || format!("it did not list its tools within {} ms", limit.as_millis());
    let (mut tools, mut cursor): (Vec<RemoteTool>, Option<String>) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let page = timeout_at(deadline, page(peer, cursor)).await.map_err(|_| late())?;
        let page = page.map_err(|error| format!("it did not list its tools: {}", describe(&error)))?;
        let room = TOOLS_MAX.saturating_sub(tools.len());
        tools.extend(page.tools.into_iter().filter_map(|tool| read(server, tool)).take(room));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if cursor.is_some() || tools.len() == TOOLS_MAX {
        tracing::warn!(server, kept = tools.len(), "a server lists more tools than are taken");
    }
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools.dedup_by(|next, kept| next.name == kept.name);
    Ok(tools)
}

/// One page, past rmcp's cache: we ask because the list has changed.
async fn page(
    peer: &Peer<RoleClient>,
    cursor: Option<String>,
) -> Result<model::ListToolsResult, ServiceError> {
    let request = ListToolsRequest {
        method: model::ListToolsRequestMethod,
        params: Some(PaginatedRequestParams::default().with_cursor(cursor)),
        extensions: model::Extensions::default(),
    };
    let request = ClientRequest::ListToolsRequest(request);
    let answer = peer.send_request_with_option(request, PeerRequestOptions::no_options()).await?;
    if let ServerResult::ListToolsResult(page) = answer.await_response().await? {
        Ok(page)
    } else {
        Err(ServiceError::UnexpectedResponse)
    }
}

/// A tool as it is offered; none when it is out of bounds.
fn read(server: &str, tool: ListedTool) -> Option<RemoteTool> {
    let name = tool.name.into_owned();
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        tracing::warn!(server, bytes = name.len(), "a tool is left out: its name is empty or too long");
        return None;
    }
    let schema = schema(&tool.input_schema)
        .inspect_err(|why| tracing::warn!(server, tool = name, "a tool is left out: {why}"))
        .ok()?;
    let annotations = tool.annotations.as_ref();
    let mut description = tool.description.map(std::borrow::Cow::into_owned).unwrap_or_default();
    if description.is_empty() {
        description = tool.title.or_else(|| annotations?.title.clone()).unwrap_or_default();
    }
    if description.len() > DESCRIPTION_BYTES_MAX {
        description.truncate(description.floor_char_boundary(DESCRIPTION_BYTES_MAX));
        description.push('…');
    }
    let reads = annotations.and_then(|hints| hints.read_only_hint) == Some(true);
    Some(RemoteTool { name, description, schema, reads })
}

/// The schema as model servers take it: an object's, without the note of its dialect.
fn schema(given: &JsonObject) -> Result<Box<RawValue>, String> {
    let mut schema = given.clone();
    schema.remove("$schema");
    schema.entry("type").or_insert_with(|| Value::from("object"));
    schema.entry("properties").or_insert_with(|| Value::Object(JsonObject::new()));
    if schema["type"] != "object" {
        return Err("its parameters are no object".to_owned());
    }
    let text = serde_json::to_string(&schema).map_err(|error| error.to_string())?;
    if text.len() > SCHEMA_BYTES_MAX {
        return Err(format!("its schema has {} bytes, more than {SCHEMA_BYTES_MAX}", text.len()));
    }
    RawValue::from_string(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(value: Value) -> Option<RemoteTool> {
        read("s", serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_schema_is_compact_and_an_objects() {
        let schema =
            |value| tool(json!({"name": "t", "inputSchema": value})).map(|t| t.schema.get().to_owned());
        assert_eq!(
            schema(json!({"type": "object", "properties": {"b": {}, "a": {}}, "$schema": "x"})).unwrap(),
            r#"{"properties":{"a":{},"b":{}},"type":"object"}"#
        );
        assert_eq!(schema(json!({})).unwrap(), r#"{"properties":{},"type":"object"}"#);
        assert_eq!(schema(json!({"type": "string"})), None);
        assert_eq!(schema(json!({"description": "x".repeat(SCHEMA_BYTES_MAX)})), None);
    }

    #[test]
    fn a_tool_reads_only_when_its_server_says_so() {
        let reads =
            |hints| tool(json!({"name": "t", "inputSchema": {}, "annotations": hints})).unwrap().reads;
        assert!(reads(json!({"readOnlyHint": true})));
        assert!(!reads(json!({"readOnlyHint": false})));
        assert!(!reads(json!({})));
    }

    #[test]
    fn a_long_description_is_cut_and_a_title_stands_for_none() {
        let description = |value: Value| tool(value).unwrap().description;
        let long = "é".repeat(DESCRIPTION_BYTES_MAX);
        let cut = description(json!({"name": "t", "inputSchema": {}, "description": long}));
        assert_eq!(cut.len(), DESCRIPTION_BYTES_MAX + '…'.len_utf8());
        assert_eq!(description(json!({"name": "t", "title": "T", "inputSchema": {}})), "T");
    }
}
