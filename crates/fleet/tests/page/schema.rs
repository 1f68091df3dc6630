//! The description of the API, held against what the API answers.

use serde_json::Value;

/// The objections that a schema has to a value. It knows what our schemas use, and objects to all else.
pub(crate) fn objections(api: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = api.pointer(reference.trim_start_matches('#')).unwrap_or_else(|| panic!("{reference} is nowhere"));
        return objections(api, schema, value, at);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let all: Vec<_> = choices.iter().map(|choice| objections(api, choice, value, at)).collect();
        let fits = all.iter().filter(|objections| objections.is_empty()).count();
        return if fits == 1 { Vec::new() } else { all.concat() };
    }
    let is_of = |name: &Value| match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other} is no type"),
    };
    let has_type = schema["type"].as_array().map_or_else(|| is_of(&schema["type"]), |names| names.iter().any(is_of));
    if !has_type {
        return vec![format!("{at}: {value} is no {}", schema["type"])];
    }
    let mut found = Vec::new();
    if schema["enum"].as_array().is_some_and(|choices| !choices.contains(value)) {
        found.push(format!("{at}: {value} is not one of {}", schema["enum"]));
    }
    if schema["minimum"].as_f64().is_some_and(|minimum| value.as_f64().unwrap() < minimum) {
        found.push(format!("{at}: {value} is too small"));
    }
    if schema["format"] == "date-time" && !value.as_str().unwrap().ends_with('Z') {
        found.push(format!("{at}: {value} is no time"));
    }
    for (place, item) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(objections(api, &schema["items"], item, &format!("{at}[{place}]")));
    }
    if let Some(fields) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten() {
            if !fields.contains_key(name.as_str().unwrap()) {
                found.push(format!("{at}: {name} is missing"));
            }
        }
        for (name, field) in fields {
            match schema["properties"].get(name) {
                Some(schema) => found.extend(objections(api, schema, field, &format!("{at}.{name}"))),
                None => found.push(format!("{at}: {name} is not described")),
            }
        }
    }
    found
}
