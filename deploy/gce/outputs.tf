output "service_account" {
  description = "The machine that runs `hotdesk serve` has this account; then no key is needed."
  value       = google_service_account.fleet.email
}

output "gateway_subnetwork" {
  description = "Where the machine that runs `hotdesk serve` is."
  value       = google_compute_subnetwork.gateway.id
}

output "gateway_tag" {
  description = "The network tag of the machine that runs `hotdesk serve`."
  value       = local.gateway_tag
}

output "settings" {
  description = "For the fleet's hotdesk.toml."
  value       = <<-EOT
    [gce]
    project = "${var.project}"
    zones = ${jsonencode(var.zones)}
    network = "${google_compute_network.desks.name}"
    subnetwork = "${google_compute_subnetwork.desks.name}"
    tags = ["${local.desk_tag}"]
    closed_tag = "${local.closed_tag}"
    bucket = "${google_storage_bucket.disks.name}"
    spot = ${var.spot}
  EOT
}

output "group_token" {
  description = "The token of the instance group's desks."
  value       = var.group ? random_password.token[0].result : null
  sensitive   = true
}
